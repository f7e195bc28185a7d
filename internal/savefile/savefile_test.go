package savefile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var format = Format{Magic: "test 1\n", Identity: "here"}

// save writes a number and a text.
func save(n uint64, text string) func(*Encoder) error {
	return func(e *Encoder) error {
		e.Number(n)
		e.Text(text)
		return nil
	}
}

func TestFileIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path+".123", []byte("of a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := format.Write(path, save(7, "seven")); err != nil {
		t.Fatal(err)
	}
	var n uint64
	var text string
	_, err := format.Read(path, func(d *Decoder) error { n, text = d.Number(), d.Text(); return d.Err() })
	if err != nil || n != 7 || text != "seven" {
		t.Errorf("read %d, %q, %v", n, text, err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("files %v, error %v, want the written one", files, err)
	}
}

func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	if err := format.Write(path, save(1, "old")); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	err := format.Write(path, func(e *Encoder) error { e.Text("half"); return failed })
	if !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("files %v, want the old one alone", files)
	}
	if _, err := format.Read(path, func(d *Decoder) error { d.Number(); d.Text(); return nil }); err != nil {
		t.Error(err)
	}
}

func TestWrongFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	if err := format.Write(path, save(7, "seven")); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.Clone(whole)
	wrong[9] ^= 1
	tests := []struct {
		reason string
		by     Format
		data   []byte
		want   error // nil: any
	}{
		{"another identity", Format{Magic: format.Magic, Identity: "there"}, whole, nil},
		{"another format", Format{Magic: "test 2\n", Identity: "here"}, whole, nil},
		{"one bit is wrong", format, wrong, ErrDamaged},
		{"cut short", format, whole[:len(whole)-1], ErrDamaged},
		{"empty", format, nil, ErrDamaged},
	}
	for _, tc := range tests {
		if err := os.WriteFile(path, tc.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := tc.by.Read(path, func(d *Decoder) error { d.Number(); d.Text(); return d.Err() })
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", tc.reason, err, tc.want)
		}
	}
}

// TestMissingFieldsAreAnError: reading more fields than were written is an error, even if the caller does not check
// Err.
func TestMissingFieldsAreAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	if err := format.Write(path, save(7, "seven")); err != nil {
		t.Fatal(err)
	}
	_, err := format.Read(path, func(d *Decoder) error { d.Number(); d.Text(); d.Text(); return nil })
	if err == nil {
		t.Error("no error")
	}
}

// FuzzDecode: no input makes a Decoder panic or allocate without bound.
func FuzzDecode(f *testing.F) {
	var whole bytes.Buffer
	if err := format.encode(&whole, save(7, "seven")); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Fuzz(func(_ *testing.T, data []byte) {
		_ = format.Decode(bytes.NewReader(data), func(d *Decoder) error {
			for range d.Number() {
				if d.Field(); d.Err() != nil {
					break
				}
			}
			return d.Err()
		})
	})
}
