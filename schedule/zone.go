package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a machine or a container without a time zone database has one in the program
)

// meant maps abbreviations and names of Windows, which the database does not have, to names of the database.
var meant = map[string]string{
	"PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PT": "America/Los_Angeles", "MDT": "America/Denver", "MT": "America/Denver",
	"CST": "America/Chicago, or Asia/Shanghai", "CDT": "America/Chicago", "CT": "America/Chicago", "EDT": "America/New_York", "ET": "America/New_York",
	"AKST": "America/Anchorage", "AKDT": "America/Anchorage", "AST": "America/Halifax, or Asia/Riyadh", "ADT": "America/Halifax", "BRT": "America/Sao_Paulo",
	"BST": "Europe/London", "IST": "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem", "CEST": "Europe/Paris", "EEST": "Europe/Athens", "WEST": "Europe/Lisbon",
	"MSK": "Europe/Moscow", "SAST": "Africa/Johannesburg", "GST": "Asia/Dubai", "PKT": "Asia/Karachi", "SGT": "Asia/Singapore", "HKT": "Asia/Hong_Kong",
	"JST": "Asia/Tokyo", "KST": "Asia/Seoul", "AEST": "Australia/Sydney", "AEDT": "Australia/Sydney", "AWST": "Australia/Perth", "ACST": "Australia/Adelaide",
	"NZST": "Pacific/Auckland", "NZDT": "Pacific/Auckland", "Z": "UTC", "ZULU": "UTC",
	"PACIFIC STANDARD TIME": "America/Los_Angeles", "MOUNTAIN STANDARD TIME": "America/Denver", "CENTRAL STANDARD TIME": "America/Chicago",
	"EASTERN STANDARD TIME": "America/New_York", "GMT STANDARD TIME": "Europe/London", "W. EUROPE STANDARD TIME": "Europe/Berlin",
	"ROMANCE STANDARD TIME": "Europe/Paris", "INDIA STANDARD TIME": "Asia/Kolkata", "CHINA STANDARD TIME": "Asia/Shanghai", "TOKYO STANDARD TIME": "Asia/Tokyo",
}

// fixed are zones whose clocks never change, and the zones that are intended most often.
var fixed = map[string]string{"EST": "America/New_York", "MST": "America/Denver"}

var (
	offsetForm   = regexp.MustCompile(`^(?i:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?$`)
	invertedForm = regexp.MustCompile(`^Etc/GMT([+-])(\d{1,2})$`)
)

// location reads the name of a time zone.
func location(name string) (*time.Location, error) {
	switch {
	case name == "":
		return time.UTC, nil
	case name == "Local", name == "localtime":
		return nil, fmt.Errorf("timezone %q: differs from machine to machine: name one, such as Europe/Paris", name)
	case name == "posixrules", name == "Factory", strings.HasPrefix(name, "right/"), strings.HasPrefix(name, "posix/"):
		return nil, fmt.Errorf("timezone %q: is no zone but a file of the database: name a city, such as America/New_York", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timezone %q: is unknown: %w", name, suggestZone(name))
	}
	return zone, nil
}

// suggestZone returns an error that says what to write instead of an unknown zone.
func suggestZone(name string) error {
	text := strings.TrimSpace(name)
	if instead, ok := meant[strings.ToUpper(text)]; ok {
		return fmt.Errorf("write %s", instead)
	}
	if match := offsetForm.FindStringSubmatch(text); match != nil {
		sign := map[string]string{"+": "-", "-": "+"}[match[1]]
		hours := strings.TrimLeft(match[2], "0")
		inverted := "Etc/GMT" + sign + hours
		if hours == "" && strings.Trim(match[3], "0") == "" {
			return errors.New("write UTC")
		}
		if _, err := time.LoadLocation(inverted); err != nil || strings.Trim(match[3], "0") != "" {
			return errors.New("name a city with that time, such as Asia/Kolkata")
		}
		return fmt.Errorf("name a city with that time, such as Europe/Paris, or write %s, whose sign is the other way round: it has no summer time", inverted)
	}
	for _, instead := range spellings(text) {
		if _, err := time.LoadLocation(instead); err == nil {
			return fmt.Errorf("write %s", instead)
		}
	}
	return errors.New("want a name of the IANA database, such as UTC, Europe/Paris or America/New_York")
}

var wordForm = regexp.MustCompile(`[A-Za-z]+`)

// spellings returns names of the database that differ from name in case, spaces and continent.
func spellings(name string) []string {
	name = strings.ReplaceAll(name, " ", "_")
	if strings.ContainsAny(name, `.\`) || strings.HasPrefix(name, "/") { // no name, but perhaps a file
		return nil
	}
	title := wordForm.ReplaceAllStringFunc(name, func(word string) string {
		word = strings.ToLower(word)
		if word == "of" || word == "es" || word == "au" {
			return word
		}
		return strings.ToUpper(word[:1]) + word[1:]
	})
	all := []string{title, strings.ToUpper(name)}
	if first, rest, ok := strings.Cut(title, "/"); ok {
		all = append(all, strings.ToUpper(first)+"/"+rest, first+"/"+strings.ToUpper(rest))
	} else {
		for _, continent := range []string{"Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian"} {
			all = append(all, continent+"/"+title)
		}
	}
	return all
}

// zoneWarning says that a zone is probably not what was intended; "" if there is nothing to say.
func zoneWarning(name string) string {
	if city := fixed[name]; city != "" {
		return fmt.Sprintf("timezone %q: has no summer time: for clocks that change, use %s", name, city)
	}
	if match := invertedForm.FindStringSubmatch(name); match != nil && match[2] != "0" {
		sign := map[string]string{"+": "-", "-": "+"}[match[1]]
		return fmt.Sprintf("timezone %q: is UTC%s%s: its sign is the other way round; and it has no summer time", name, sign, match[2])
	}
	return ""
}
