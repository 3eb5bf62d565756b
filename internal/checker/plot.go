package checker

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	minPlotWidth  = 40
	minPlotHeight = 1
)

// Plot draws two charts of unicode blocks, arrivals above departures, on the
// same axis of time. The bins are of length bin; each chart has its own scale,
// from 0 to its highest bin, in jobs per second, so that an even stream is a
// full rectangle. A line is at most width columns long, 40 or more, and the bars of a chart are
// height lines high. Where there are more bins than columns, a column is the
// mean of its bins; let a bin hold some twenty departures, since fewer look
// uneven for their roundness alone.
func Plot(arrivals, departures []int, bin time.Duration, width, height int) string {
	bins := max(len(arrivals), len(departures))
	if bins == 0 || bin <= 0 {
		return ""
	}
	width, height = max(width, minPlotWidth), max(height, minPlotHeight)
	upper, lower := ratesOf(arrivals, bins, bin), ratesOf(departures, bins, bin)
	margin := max(labelWidth(upper), labelWidth(lower))
	columns := width - margin - 2 // a space and the axis

	var b strings.Builder
	drawChart(&b, "arrivals", upper, margin, columns, height)
	drawChart(&b, "departures", lower, margin, columns, height)
	drawTime(&b, time.Duration(bins)*bin, margin, columns)
	return b.String()
}

// ratesOf turns counts into jobs per second and pads them with zeros to n bins.
func ratesOf(counts []int, n int, bin time.Duration) []float64 {
	rates := make([]float64, n)
	for i, count := range counts {
		rates[i] = float64(count) / bin.Seconds()
	}
	return rates
}

func labelWidth(rates []float64) int {
	return len(number(slices.Max(rates)) + "/s")
}

func drawChart(b *strings.Builder, title string, rates []float64, margin, columns, height int) {
	bars := resample(rates, columns)
	peak, mean := slices.Max(rates), 0.0
	for _, rate := range rates {
		mean += rate / float64(len(rates))
	}
	fmt.Fprintf(b, "%*s  %s, %s/s on average\n", margin, "", title, number(mean))
	for row := height - 1; row >= 0; row-- {
		label, axis := "", "│"
		switch row {
		case height - 1:
			label, axis = number(peak)+"/s", "┤"
		case 0:
			label, axis = "0", "┤"
		}
		line := fmt.Sprintf("%*s %s", margin, label, axis)
		for _, bar := range bars {
			line += block(bar, peak, row, height)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// block returns the part of a bar that lies in a row, in eighths.
func block(bar, peak float64, row, height int) string {
	if bar <= 0 {
		return " "
	}
	eighths := int(math.Round(bar / peak * float64(height) * 8))
	eighths = max(eighths, 1) // a small number is still visible
	const blocks = " ▁▂▃▄▅▆▇█"
	level := min(max(eighths-row*8, 0), 8)
	return string([]rune(blocks)[level])
}

// resample spreads the values over n columns; each is the mean of the stretch
// that it covers, so that an even stream stays even.
func resample(values []float64, n int) []float64 {
	columns := make([]float64, n)
	step := float64(len(values)) / float64(n)
	for i := range columns {
		from, to := float64(i)*step, float64(i+1)*step
		for at := from; at < to; {
			bin := min(int(at), len(values)-1)
			end := min(float64(bin+1), to)
			if end <= at { // the last bin, beyond which only rounding lies
				break
			}
			columns[i] += values[bin] * (end - at) / step
			at = end
		}
	}
	return columns
}

// drawTime writes the axis with a tick at each quarter, and the times below.
func drawTime(b *strings.Builder, length time.Duration, margin, columns int) {
	axis := []rune(strings.Repeat("─", columns))
	labels := []rune(strings.Repeat(" ", margin+2+columns))
	quarters := 4
	if columns < 40 {
		quarters = 2
	}
	for q := range quarters + 1 {
		at := q * (columns - 1) / quarters
		axis[at] = '┬'
		label := []rune(moment(length / time.Duration(quarters) * time.Duration(q)))
		begin := min(margin+2+at-len(label)/2, len(labels)-len(label))
		copy(labels[begin:], label)
	}
	fmt.Fprintf(b, "%*s └%s\n", margin, "", string(axis))
	b.WriteString(strings.TrimRight(string(labels), " ") + "\n")
}

// number writes x with about three digits: 0.25, 4.5, 50, 1234, 250k.
func number(x float64) string {
	switch {
	case x >= 1e6:
		return number(x/1e6) + "M"
	case x >= 1e5:
		return number(x/1e3) + "k"
	case x >= 99.95:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 9.995:
		return trimZeros(strconv.FormatFloat(x, 'f', 1, 64))
	}
	return trimZeros(strconv.FormatFloat(x, 'f', 2, 64))
}

func trimZeros(s string) string { return strings.TrimRight(strings.TrimRight(s, "0"), ".") }

// moment writes a time of the axis: 0, 250ms, 2.5s, 90s, 10m0s.
func moment(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Second:
		return number(d.Seconds()*1000) + "ms"
	case d < 2*time.Minute:
		return number(d.Seconds()) + "s"
	}
	return d.Round(time.Second).String()
}
