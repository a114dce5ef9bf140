package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/record"
)

// LogsName is a file in the folder that names the logs that there are. Pebble cannot
// miss a log that somebody has removed, as nothing else says that there was one.
//
// A log is named after it is in the folder for good, and before anything is in it
// that may be acknowledged: see LogsNote. It is not taken out when it is removed, as
// the manifest says by then that it is not needed: see MinUnflushed. A clean stop
// leaves none named, as nothing needs one.
const LogsName = "LOGS"

// LogsBytes is the size of the file. It is what a disk writes whole or not at all, so
// that the file can be written in place. A half of it would mean nothing, and so
// refuse nothing.
const LogsBytes = sector

// LogsNote returns the content of the file that names those logs, or the latest of
// them that it has room for.
func LogsNote(logs []uint64) []byte {
	slices.Sort(logs)
	for {
		var line bytes.Buffer
		for _, n := range logs {
			_, _ = fmt.Fprintf(&line, "%06d.log ", n)
		}
		_, _ = fmt.Fprintf(&line, "%08x\n", crc32.Checksum(line.Bytes(), castagnoli))
		if line.Len() <= LogsBytes {
			return append(line.Bytes(), make([]byte, LogsBytes-line.Len())...)
		}
		logs = logs[1:]
	}
}

// CompareLogs returns an error if a log is not in the folder that is named and that
// the manifest of that content needs.
func CompareLogs(read func(name string) ([]byte, error), names []string, manifest []byte) error {
	note, err := read(LogsName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", LogsName, err)
	}
	line, _, _ := bytes.Cut(note, []byte("\n"))
	needed, known := MinUnflushed(manifest)
	if !known {
		return nil
	}
	var logs []uint64
	var missing string
	for _, name := range bytes.Fields(line) {
		n, ok := LogNumber(string(name))
		if !ok {
			continue
		}
		logs = append(logs, n)
		if n >= needed && !slices.Contains(names, string(name)) && missing == "" {
			missing = string(name)
		}
	}
	if missing == "" || !bytes.Equal(note, LogsNote(logs)) {
		return nil
	}
	return &MissingLogError{missing}
}

// MissingLogError says that a log is not there.
type MissingLogError struct{ Name string }

func (e *MissingLogError) Error() string {
	return fmt.Sprintf("the log %s is missing, which may have held what was acknowledged last: put it back, or remove %s to go on without", e.Name, LogsName)
}

// MinUnflushed returns the number of the first log that a store with a manifest of
// that content needs, if the manifest says it as this version of Pebble does: each
// record is a change, with the comparer first if it names one, and then the number if
// that changes.
func MinUnflushed(manifest []byte) (number uint64, known bool) {
	const comparer, log = 1, 2 // tags of fields
	records := record.NewReader(bytes.NewReader(manifest), 0)
	for {
		r, err := records.Next()
		if err != nil {
			return number, known // what is behind the end was never in force
		}
		edit, err := io.ReadAll(r)
		if err != nil {
			return number, known
		}
		tag, n := binary.Uvarint(edit)
		if n > 0 && tag == comparer {
			edit = edit[n:]
			length, n := binary.Uvarint(edit)
			if n <= 0 || length > uint64(len(edit)-n) {
				return 0, false
			}
			edit = edit[n+int(length):]
			tag, _ = binary.Uvarint(edit)
		}
		if tag != log || len(edit) == 0 {
			continue
		}
		value, n := binary.Uvarint(edit[1:])
		if n <= 0 {
			return 0, false
		}
		number, known = max(number, value), true
	}
}
