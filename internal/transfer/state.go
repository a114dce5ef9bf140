package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spillway-go/spillway/internal/durable"
)

// state is what the file says.
type state struct {
	Format int `json:"format"`
	Identity
	// Moment is the timestamp of all that is written, in whole microseconds.
	Moment time.Time `json:"moment"`
	// VerifyOnly says that there is no first pass.
	VerifyOnly bool `json:"verify_only,omitempty"`
	// Verifying says that the first pass is done.
	Verifying bool     `json:"verifying"`
	Copied    Position `json:"copied"`
	Verified  Position `json:"verified"`
}

func (s *state) result() Result {
	return Result{Moment: s.Moment, Copied: s.Copied, Verified: s.Verified}
}

// format is of the files that this version writes, and the only one it reads.
const format = 1

// load reads the file, and returns nil if there is none.
func load(path string) (*state, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s does not say how far a copy is (%w): remove it to copy from the beginning, or name another file", path, err)
	}
	return s, nil
}

// parse reads what the file says. What save cannot have written is an error.
func parse(text []byte) (*state, error) {
	var s state
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind its end")
	}
	switch {
	case s.Format != format:
		return nil, fmt.Errorf("its format is %d, and this version knows %d", s.Format, format)
	case s.Moment.IsZero() || !s.Copied.possible() || !s.Verified.possible(),
		s.VerifyOnly && (!s.Verifying || s.Copied.Keys > 0), !s.Verifying && s.Verified.Keys > 0:
		return nil, errors.New("it contradicts itself")
	}
	return &s, nil
}

// possible reports whether the figures can be those of a position.
func (p *Position) possible() bool {
	listed := int64(len(p.Differences))
	return p.Keys >= 0 && (p.Keys == 0) == (len(p.After) == 0) && p.Bytes >= p.Keys &&
		p.Newer >= 0 && p.Different >= 0 && p.Newer <= p.Keys-p.Different &&
		listed == min(p.Different, MaxDifferences)
}

// belongsTo returns nil if the file is of that copy.
func (s *state) belongsTo(j *Job) error {
	what := func(verifyOnly bool) string {
		if verifyOnly {
			return "verification of a copy"
		}
		return "copy"
	}
	of := fmt.Sprintf("%s says how far a %s from %s to %s is", j.State, what(s.VerifyOnly), s.From, s.To)
	const remove = "remove it to begin anew"
	switch {
	case s.From != j.From || s.VerifyOnly != j.VerifyOnly || s.To != j.To && s.Target != j.Identity.Target:
		return fmt.Errorf("%s, and not of this %s: name another file, or %s", of, what(j.VerifyOnly), remove)
	case s.Source != j.Identity.Source:
		return fmt.Errorf("%s, and the source has changed since, as a service was started on it or another store is in its place: %s", of, remove)
	case s.Target != j.Identity.Target:
		return fmt.Errorf("%s, and the table there is another one by now: %s", of, remove)
	}
	return nil
}

// save writes the file, durably, whole or not at all.
func (s *state) save(path string) error {
	s.Format = format
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(text, '\n')); err != nil {
		return fmt.Errorf("cannot note how far the copy is: %w", err)
	}
	return nil
}
