package frame_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead-io/fairlead/internal/frame"
)

var samples = []string{
	`{}`, `[]`, `{"a":1}`, `{"a":{"b":[1,2,{"c":null}]},"d":"x\"y\\z"}`, ` [ true , false , null ] `, `{"a":1,}`, `[1,]`,
	`{"a"}`,
	`{"a":01}`, `[-]`, `[1.]`, `[1e]`, `[1e+5,0.5E-3,-0]`, "[\"\u0001\"]", `["\u00zz"]`, `["\x"]`, `["é\ud83d\ude00"]`,
	`{"a":1]`, `[1}`, `{1:2}`,
	`[truе]`, `{"a" : "` + strings.Repeat("long ", 40) + `"}`, "[\"\xff\xfe\"]",
	strings.Repeat("[", 200) + strings.Repeat("]", 200),
	strings.Repeat(`{"a":`, 130) + "1" + strings.Repeat("}", 130),
}

// FuzzSkipValue: SkipValue accepts what encoding/json accepts, and reports ErrShort for each prefix of a valid value.
func FuzzSkipValue(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		i := frame.SkipSpace(b, 0)
		end, err := frame.SkipValue(append(b[:len(b):len(b)], ' '), i)
		rest := ""
		if err == nil && end <= len(b) {
			rest = strings.TrimLeft(string(b[end:]), " \t\r\n")
		}
		if ours, theirs := err == nil && rest == "", json.Valid(b); ours != theirs {
			t.Fatalf("%q: valid %v, encoding/json says %v (error %v)", b, ours, theirs, err)
		}
		if err != nil {
			return
		}
		for cut := i; cut < end-1; cut += 1 + (end-i)/16 {
			if _, err := frame.SkipValue(b[:cut], i); !errors.Is(err, frame.ErrShort) {
				t.Fatalf("%q cut at %d: error %v, want ErrShort", b, cut, err)
			}
		}
	})
}

// FuzzUnquoted: Unquoted agrees with encoding/json.
func FuzzUnquoted(f *testing.F) {
	for _, s := range []string{
		`a`, `\n\t\"\\\/`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\ud83dx`, `\ud83d\u0041`, "\xff",
		"é",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		quoted := append(append([]byte{'"'}, s...), '"')
		var want string
		theirs := json.Unmarshal(quoted, &want)
		end, plain, err := frame.SkipString(quoted, 0)
		if (err == nil && end == len(quoted)) != (theirs == nil) {
			t.Fatalf("%q: error %v at %d, encoding/json %v", s, err, end, theirs)
		}
		if theirs != nil {
			return
		}
		if got := string(frame.AppendUnquoted(nil, s)); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
		if plain != !strings.Contains(string(s), `\`) {
			t.Errorf("%q: plain %v", s, plain)
		}
	})
}

func TestDepthIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if _, err := frame.SkipValue(nested(frame.MaxDepth), 0); err != nil {
		t.Errorf("%d levels: %v", frame.MaxDepth, err)
	}
	var syntax *frame.SyntaxError
	if _, err := frame.SkipValue(nested(frame.MaxDepth+1), 0); !errors.As(err, &syntax) {
		t.Errorf("%d levels: error %v, want a SyntaxError", frame.MaxDepth+1, err)
	}
}

// FuzzNextField: fields are split as protowire splits them.
func FuzzNextField(f *testing.F) {
	f.Add(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x"))
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 300))
	f.Add(protowire.AppendFixed64(protowire.AppendTag(nil, 3, protowire.Fixed64Type), 9))
	f.Add([]byte{0x0a, 0x80})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		field, next, err := frame.NextField(b, 0)
		num, typ, n := protowire.ConsumeField(b)
		if typ == protowire.StartGroupType || typ == protowire.EndGroupType {
			return // no kind of Kubernetes uses groups
		}
		if (err == nil) != (n >= 0) {
			t.Fatalf("%x: error %v, protowire %v", b, err, protowire.ParseError(n))
		}
		if err == nil && (field.Number != int(num) || field.Type != int(typ) || next != n) {
			t.Errorf("%x: field %+v next %d, protowire %d %d next %d", b, field, next, num, typ, n)
		}
	})
}
