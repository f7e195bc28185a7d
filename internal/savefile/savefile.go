// Package savefile stores fields in a file that survives a crash. The file has a magic line, then an s2 stream of an
// identity and the fields, each preceded by its length. The CRC-32C of the preceding bytes is at the end. Write creates
// a temporary file beside the old one and renames it, so a crash leaves either the old or the new file.
package savefile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
)

// ErrDamaged is the error of a file whose content is corrupt.
var ErrDamaged = errors.New("the file is damaged")

// Format identifies the files of one purpose.
type Format struct {
	Magic    string // the first line, including its newline
	Identity string // owner of the fields; Read rejects a file with another identity
}

// Write replaces a file by one with the fields that fill writes. If fill fails, the old file stays.
func (f Format) Write(path string, fill func(*Encoder) error) (err error) {
	dir, name := filepath.Split(path)
	file, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	buf := bufio.NewWriterSize(file, 1<<16)
	if err = f.encode(io.MultiWriter(buf, sum), fill); err == nil {
		err = errors.Join(binary.Write(buf, binary.LittleEndian, sum.Sum32()), buf.Flush(), file.Sync())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func (f Format) encode(w io.Writer, fill func(*Encoder) error) error {
	if _, err := io.WriteString(w, f.Magic); err != nil {
		return err
	}
	z := s2.NewWriter(w, s2.WriterConcurrency(1))
	out := Encoder{w: z}
	out.Text(f.Identity)
	err := fill(&out)
	if err == nil {
		err = out.err
	}
	return errors.Join(err, z.Close())
}

// Read calls take to read the fields of a file, and returns when the file was written. It first verifies the checksum
// of the whole file. It also removes the temporary files of interrupted writes.
func (f Format) Read(path string, take func(*Decoder) error) (at time.Time, err error) {
	removeLeftovers(path)
	file, err := os.Open(path)
	if err != nil {
		return at, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return at, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if err := checkSum(file, info.Size(), sum); err != nil {
		return at, err
	}
	return info.ModTime(), f.Decode(io.LimitReader(file, info.Size()-crc32.Size), take)
}

// removeLeftovers removes the temporary files of interrupted writes.
func removeLeftovers(path string) {
	dir, name := filepath.Split(path)
	files, _ := os.ReadDir(dir) // reading the file reports any error
	for _, f := range files {
		if strings.HasPrefix(f.Name(), name+".") {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}

// checkSum verifies the checksum of the whole file and seeks back to the start.
func checkSum(f io.ReadSeeker, size int64, sum hash.Hash32) error {
	if size < crc32.Size {
		return ErrDamaged
	}
	if _, err := io.Copy(sum, io.LimitReader(f, size-crc32.Size)); err != nil {
		return err
	}
	var want uint32
	if err := binary.Read(f, binary.LittleEndian, &want); err != nil {
		return err
	}
	if want != sum.Sum32() {
		return ErrDamaged
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// Decode calls take to read the fields of a file without its checksum. It does not trust any length.
func (f Format) Decode(r io.Reader, take func(*Decoder) error) error {
	magic := make([]byte, len(f.Magic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != f.Magic {
		return errors.New("not of this format")
	}
	in := Decoder{r: bufio.NewReader(s2.NewReader(r))}
	if id := in.Text(); in.err == nil && id != f.Identity {
		return fmt.Errorf("saved of %q", id)
	}
	if err := take(&in); err != nil {
		return err
	}
	return in.err
}
