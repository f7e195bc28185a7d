package schedule

import (
	"encoding/json"
	"io"

	"k8s.io/apimachinery/pkg/watch"
)

// frames is the body of a watch in JSON. It passes on the frame of a change when reached has returned for its resource
// version. Only one goroutine may use it.
type frames struct {
	body    io.ReadCloser
	decoder *json.Decoder
	reached func(version string)
	left    []byte // of the present frame
}

func newFrames(body io.ReadCloser, reached func(version string)) *frames {
	return &frames{body: body, decoder: json.NewDecoder(body), reached: reached}
}

func (f *frames) Read(p []byte) (int, error) {
	if len(f.left) == 0 {
		var frame json.RawMessage
		if err := f.decoder.Decode(&frame); err != nil {
			return 0, err
		}
		var event struct {
			Type   watch.EventType `json:"type"`
			Object struct {
				Metadata struct {
					ResourceVersion string `json:"resourceVersion"`
				} `json:"metadata"`
			} `json:"object"`
		}
		if json.Unmarshal(frame, &event) == nil && event.Type != watch.Bookmark && event.Type != watch.Error {
			f.reached(event.Object.Metadata.ResourceVersion)
		}
		f.left = append(frame, '\n')
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}

func (f *frames) Close() error { return f.body.Close() }
