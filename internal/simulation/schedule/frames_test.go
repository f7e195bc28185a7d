package schedule

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The frame of a change is delivered when its version is reached. Bookmarks and errors are delivered at once.
func TestFrames(t *testing.T) {
	stream := `{"type":"ADDED","object":{"metadata":{"resourceVersion":"5"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}
{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"7"}}}{"type":"ERROR","object":{"code":410}}
`
	var course []string
	body := newFrames(io.NopCloser(strings.NewReader(stream)), func(version string) {
		course = append(course, "reached "+version)
	})
	var text strings.Builder
	buffer := make([]byte, 10)
	for {
		n, err := body.Read(buffer)
		if n > 0 && (len(course) == 0 || course[len(course)-1] != "read") {
			course = append(course, "read")
		}
		text.Write(buffer[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"reached 5", "read", "reached 7", "read"}, course); diff != "" {
		t.Errorf("the course (-want +got):\n%s", diff)
	}
	if want := strings.ReplaceAll(stream, "}{", "}\n{"); text.String() != want {
		t.Errorf("the subject reads\n%s\nwant\n%s", &text, want)
	}
}
