package overlay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
)

// maxAnswer bounds the size of an answer in memory, both as received and decompressed.
const maxAnswer = 64 << 20

// errUnread means that an answer is too long or has an unknown compression. The caller still receives it.
var errUnread = errors.New("the answer cannot be decoded")

// readAnswer returns the decompressed body of an answer. It replaces the body by one with the same bytes and the same
// error at the end.
func readAnswer(res *http.Response) ([]byte, error) {
	var raw bytes.Buffer
	if n := res.ContentLength; n > 0 && n <= maxAnswer {
		raw.Grow(int(n) + bytes.MinRead)
	}
	n, err := raw.ReadFrom(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		res.Body = replayed(raw.Bytes(), failing{err}, res.Body)
		return nil, err
	case n > maxAnswer:
		res.Body = replayed(raw.Bytes(), res.Body, res.Body)
		return nil, errUnread
	}
	res.Body = replayed(raw.Bytes(), http.NoBody, res.Body)
	if res.Uncompressed || res.Header.Get("Content-Encoding") == "" {
		return raw.Bytes(), nil
	}
	if res.Header.Get("Content-Encoding") != "gzip" {
		return nil, errUnread
	}
	z, err := gzip.NewReader(bytes.NewReader(raw.Bytes()))
	if err != nil {
		return nil, errUnread
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxAnswer+1))
	if err != nil || len(plain) > maxAnswer {
		return nil, errUnread
	}
	return plain, nil
}

// mediaOf reports whether an answer can be decoded here, and whether it is a stream or not in a format of the API. The
// latter may never end.
func mediaOf(res *http.Response) (known, stream bool) {
	media, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil || params["stream"] != "":
		return false, true
	case media == "application/json" || media == "application/vnd.kubernetes.protobuf":
		return true, false
	}
	return false, media != "application/yaml" && media != "application/cbor"
}

// mediaType returns the Content-Type without parameters.
func mediaType(h http.Header) string {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return media
}

// replay is a body that was partly read.
type replay struct {
	io.Reader
	io.Closer
}

func replayed(read []byte, rest io.Reader, body io.Closer) io.ReadCloser {
	return replay{Reader: io.MultiReader(bytes.NewReader(read), rest), Closer: body}
}

// failing is a reader that always fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
