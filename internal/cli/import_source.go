package cli

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/tundish-io/tundish/internal/inputtext"
	"github.com/tundish-io/tundish/shaper"
)

// sourceJob is a job of a file.
type sourceJob struct {
	line  int64  // of the file, or the row of a table, from 1 on: the unit of --resume
	at    int64  // the line of the file, as an editor counts
	text  []byte // the job as JSON, with an id
	fault string // why it is none, and was not sent
	raw   []byte // the bytes in the file
}

// jobSource reads jobs from a file.
type jobSource struct {
	read  *countedReader
	next  func() (raw, job []byte, err error) // io.EOF at the end; a fault of one row is a rowError
	line  int64                               // that was read last, or the row
	at    int64                               // the line of the file at which that begins
	equal map[[12]byte]int64                  // how many equal jobs there were so far
}

// countedReader counts what was read.
type countedReader struct {
	io.Reader
	n atomic.Int64
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

// rowError is the fault of one row: the others go on.
type rowError struct{ error }

func newJobSource(file io.Reader, flags importFlags) (*jobSource, error) {
	s := &jobSource{read: &countedReader{Reader: file}, equal: map[[12]byte]int64{}}
	if flags.csv {
		return s, s.rows(flags)
	}
	scanner := bufio.NewScanner(inputtext.NewReader(s.read))
	scanner.Buffer(nil, maxLine)
	s.next = func() (raw, job []byte, err error) {
		for scanner.Scan() {
			s.at++
			text := inputtext.TrimLine(scanner.Bytes())
			if err := inputtext.Check(text, s.at); err != nil {
				return text, nil, rowError{err}
			}
			if len(text) > 0 {
				return text, text, nil
			}
			s.line++
		}
		if err := scanner.Err(); errors.Is(err, inputtext.ErrUTF16) {
			return nil, nil, fail(exitUsage, "the file %w", err)
		} else if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", s.line+1, err)
		}
		return nil, nil, io.EOF
	}
	return s, nil
}

// batch returns the jobs of the next lines after the line answered, which has its result; none at the end.
func (s *jobSource) batch(answered int64) ([]sourceJob, error) {
	var jobs []sourceJob
	for size := 0; len(jobs) < importJobs && size < importBytes; {
		raw, text, err := s.next()
		if errors.Is(err, io.EOF) {
			return jobs, nil
		}
		s.line++
		job := sourceJob{line: s.line, at: s.at, raw: bytes.Clone(raw)}
		if _, ofRow := errors.AsType[rowError](err); ofRow {
			job.fault = err.Error()
		} else if err != nil {
			return nil, err
		} else if job.text, err = s.withID(text); err != nil {
			job.fault = err.Error()
		}
		if job.line <= answered {
			continue
		}
		size += len(job.text)
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// withID returns a job as one line of JSON, with an id: its own, or one of its content and of how many equal ones there were.
func (s *jobSource) withID(text []byte) ([]byte, error) {
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	var job struct {
		ID *string `json:"id"`
	}
	if line.Bytes()[0] != '{' || json.Unmarshal(line.Bytes(), &job) != nil {
		return nil, errors.New("is no job: want a JSON object with the fields of a job")
	}
	if job.ID != nil {
		if !shaper.ValidID(*job.ID) {
			return nil, fmt.Errorf("id %q: %s", *job.ID, shaper.WantID)
		}
		return bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\n"), []byte(" "))), nil
	}
	sum := sha256.Sum256(line.Bytes())
	key := [12]byte(sum[:12])
	s.equal[key]++
	id := fmt.Sprintf("import-%s-%d", base64.RawURLEncoding.EncodeToString(sum[:18]), s.equal[key])
	// The payload keeps its bytes: receivers check signatures over them.
	text = bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\n"), []byte(" ")))
	rest := bytes.TrimSpace(text[1:])
	if len(rest) > 0 && rest[0] != '}' {
		rest = append([]byte(","), rest...)
	}
	return append([]byte(`{"id":"`+id+`"`), rest...), nil
}

// lineBytes returns the mean length of a line in bytes, from the beginning of the file; 0 if it has no line, or if the input is no file.
func (s *jobSource) lineBytes() float64 {
	file, ok := s.read.Reader.(*os.File)
	if !ok {
		return 0
	}
	head := make([]byte, 256<<10)
	n, _ := file.ReadAt(head, 0) // a shorter file ends early
	lines := bytes.Count(head[:n], []byte("\n"))
	if lines == 0 {
		return 0
	}
	return float64(n) / float64(lines)
}

// importState is the progress of an import, in a file next to the input.
type importState struct {
	path   string    // "": it is not kept
	Bucket string    `json:"bucket"`
	Line   int64     `json:"line"` // the last one with a result
	Sum    importSum `json:"sum"`
}

// read reads the state of an earlier run, if there is one.
func (s *importState) read() error {
	text, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	bucket := s.Bucket
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return fail(exitFailed, "--resume: %s cannot be read: %w", s.path, err)
	}
	if s.Bucket != bucket {
		return fail(exitUsage, "--resume: %s is of bucket %q: import into that one, or remove the file", s.path, s.Bucket)
	}
	return nil
}

// write replaces the file whole: a process that dies leaves this state or the previous one.
func (s *importState) write() error {
	if s.path == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(s.path+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(s.path+".new", s.path)
	}
	if err != nil {
		return fmt.Errorf("note how far the import is: %w", err)
	}
	return nil
}

func (s *importState) remove() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what noted how far the import was: %w", err)
	}
	return nil
}

// rejects is the file of lines that can never get in. There is none without such lines.
type rejects struct {
	path string
	file *os.File
	text bytes.Buffer
}

func (r *rejects) add(job sourceJob, reason string) {
	line, _ := json.Marshal(struct { // texts and numbers always marshal
		Line   int64  `json:"line"`
		Reason string `json:"reason"`
		Text   string `json:"text,omitempty"`
	}{job.at, reason, string(job.raw)})
	r.text.Write(line)
	r.text.WriteByte('\n')
}

// flush writes the buffered lines.
func (r *rejects) flush() (err error) {
	if r.text.Len() == 0 {
		return nil
	}
	if r.file == nil {
		if r.file, err = os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("write the rejects: %w", err)
		}
	}
	if _, err := r.text.WriteTo(r.file); err != nil {
		return fmt.Errorf("write the rejects: %w", err)
	}
	return nil
}

func (r *rejects) close() error {
	err := r.flush()
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	return err
}
