package signature_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlead-io/fairlead/operations/webhook/signature"
)

const (
	keyA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	keyB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// private is the key of RFC 8032, section 7.1, test 2.
var private = ed25519.NewKeyFromSeed([]byte(
	"\x4c\xcd\x08\x9b\x28\xff\x96\xda\x9d\xb6\xc3\x46\xec\x11\x4e\x0f\x5b\x8a\x31\x9f\x35\xab\xa6\x24\xda\x8c\xf6\xed\x4f\xb8\xa6\xfb",
))

var (
	keyPrivate = "whsk_" + base64.StdEncoding.EncodeToString(private)
	keyPublic  = "whpk_" + base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
)

func header(id string, at time.Time, sig string) http.Header {
	h := http.Header{}
	h.Set(signature.HeaderID, id)
	h.Set(signature.HeaderTimestamp, fmt.Sprint(at.Unix()))
	h.Set(signature.HeaderSignature, sig)
	return h
}

func TestPublishedVectors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, key, id string
		at              int64
		body, want      string
	}{
		{
			"the published example of Svix", "whsec_plJ3nmyCDGBKInavdOK15jsl", "msg_loFOjxBNrRLzqYUf", 1731705121,
			`{"event_type":"ping","data":{"success":true}}`, "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
		},
		{
			"the reference library's example", keyA, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
			`{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		},
	} {
		keys, err := signature.ParseKeys(tc.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := keys.Sign(tc.id, time.Unix(tc.at, 0), []byte(tc.body)); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
}

func TestAgainstReferenceLibrary(t *testing.T) {
	t.Parallel()
	now, body := time.Now(), []byte(`{"a":1}`)
	keys, err := signature.ParseKeys(keyA, keyPrivate, keyB)
	if err != nil {
		t.Fatal(err)
	}
	sig := keys.Sign("op.hook", now, body)
	if got := strings.Fields(sig); len(got) != 3 || !strings.HasPrefix(got[1], "v1a,") {
		t.Fatalf("want three signatures, the second one v1a: %s", sig)
	}
	for _, key := range []string{keyA, keyB} {
		reference, err := standardwebhooks.NewWebhook(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := reference.Verify(body, header("op.hook", now, sig)); err != nil {
			t.Errorf("the reference library refuses our signature: %v", err)
		}
		theirs, err := reference.Sign("op.hook", now, body)
		if err != nil {
			t.Fatal(err)
		}
		verifier, err := signature.NewVerifier(keyB, keyA)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(header("op.hook", now, theirs), body); err != nil {
			t.Errorf("the signature of the reference library is refused: %v", err)
		}
	}
	content := fmt.Appendf(nil, "op.hook.%d.%s", now.Unix(), body)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.Fields(sig)[1], "v1a,"))
	if err != nil || !ed25519.Verify(private.Public().(ed25519.PublicKey), content, raw) {
		t.Error("the v1a signature is not an ed25519 signature of the content")
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	now, body := time.Unix(1_800_000_000, 0), []byte("body")
	sign := func(key string, at time.Time) string {
		keys, err := signature.ParseKeys(key)
		if err != nil {
			t.Fatal(err)
		}
		return keys.Sign("id", at, body)
	}
	for _, tc := range []struct {
		reason string
		key    string
		header http.Header
		body   []byte
		want   error
	}{
		{"v1", keyA, header("id", now, sign(keyA, now)), body, nil},
		{"v1a with the private key", keyPrivate, header("id", now, sign(keyPrivate, now)), body, nil},
		{"v1a with the public key", keyPublic, header("id", now, sign(keyPrivate, now)), body, nil},
		{"one of several", keyA, header("id", now, "v2,xx garbage v1,!!! "+sign(keyB, now)+" "+sign(keyA, now)), body, nil},
		{"another key", keyB, header("id", now, sign(keyA, now)), body, signature.ErrNoMatch},
		{
			"a v1 signature under the name v1a", keyPublic,
			header("id", now, strings.Replace(sign(keyPrivate, now), "v1a", "v1", 1)), body, signature.ErrNoMatch,
		},
		{"another body", keyA, header("id", now, sign(keyA, now)), []byte("Body"), signature.ErrNoMatch},
		{"another id", keyA, header("di", now, sign(keyA, now)), body, signature.ErrNoMatch},
		{"another time", keyA, header("id", now.Add(time.Second), sign(keyA, now)), body, signature.ErrNoMatch},
		{"just not too old", keyA, header("id", now.Add(-5*time.Minute), sign(keyA, now.Add(-5*time.Minute))), body, nil},
		{
			"too old", keyA, header("id", now.Add(-301*time.Second), sign(keyA, now.Add(-301*time.Second))), body,
			signature.ErrTooOld,
		},
		{
			"too new", keyA, header("id", now.Add(301*time.Second), sign(keyA, now.Add(301*time.Second))), body,
			signature.ErrTooNew,
		},
		{"no id", keyA, header("", now, sign(keyA, now)), body, signature.ErrMissingHeader},
		{"no signature", keyA, header("id", now, ""), body, signature.ErrMissingHeader},
		{"no time", keyA, http.Header{"Webhook-Id": {"id"}, "Webhook-Signature": {"v1,x"}}, body, signature.ErrMissingHeader},
		{"an invalid time", keyA, http.Header{
			"Webhook-Id": {"id"}, "Webhook-Signature": {"v1,x"}, "Webhook-Timestamp": {"now"},
		}, body, signature.ErrTimestamp},
		{"the end of time", keyA, http.Header{
			"Webhook-Id": {"id"}, "Webhook-Signature": {"v1,x"}, "Webhook-Timestamp": {"9223372036854775807"},
		}, body, signature.ErrTimestamp},
		{
			"too many signatures", keyA, header("id", now, strings.Repeat("v1,AAAA ", 1000)+sign(keyA, now)),
			body, signature.ErrNoMatch,
		},
	} {
		verifier, err := signature.NewVerifier(tc.key)
		if err != nil {
			t.Fatal(err)
		}
		verifier.Now = func() time.Time { return now }
		if err := verifier.Verify(tc.header, tc.body); !errors.Is(err, tc.want) || (tc.want == nil && err != nil) {
			t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	broken := append(ed25519.PrivateKey(nil), private...)
	broken[40] ^= 1
	for reason, text := range map[string]string{
		"empty":                     "",
		"no prefix":                 "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"not base64":                "whsec_!!!",
		"nothing after the prefix":  "whsec_",
		"too short":                 "whsec_c2hvcnQ=",
		"too long":                  "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 200)),
		"only the seed":             "whsk_" + base64.StdEncoding.EncodeToString(private.Seed()),
		"halves of two keys":        "whsk_" + base64.StdEncoding.EncodeToString(broken),
		"a public key cannot sign":  keyPublic,
		"a public key of bad size":  "whpk_AAAA",
		"a private key, not base64": "whsk_*",
	} {
		keys, err := signature.ParseKeys(keyA, text)
		if !errors.Is(err, signature.ErrKey) || keys != nil {
			t.Errorf("%s: got %v, %v", reason, keys, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), "key 2: ") {
			t.Errorf("%s: %q does not name the key by its position", reason, err)
		}
		if len(text) > 8 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("%s: the error shows the key: %v", reason, err)
		}
	}
	key, err := signature.ParseKey(" " + keyA + "\n")
	if err != nil {
		t.Fatalf("white space around a key: %v", err)
	}
	if shown := fmt.Sprintf("%v %+v %#v %s", key, key, key, signature.Keys{key}); strings.Contains(shown, "[") &&
		strings.Contains(shown, "secret:") {
		t.Errorf("a key shows itself: %s", shown)
	}
	if _, err := signature.NewVerifier(keyA, "x"); !errors.Is(err, signature.ErrKey) {
		t.Errorf("NewVerifier: %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	keys, err := signature.ParseKeys(keyA, keyPrivate)
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	f.Add("id", "1800000000", keys.Sign("id", now, []byte("b")), []byte("b"))
	f.Add("", "x", "v1a,,, v1", []byte{})
	f.Fuzz(func(t *testing.T, id, stamp, sig string, body []byte) {
		v := &signature.Verifier{Keys: keys, Now: func() time.Time { return now }}
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {sig}}
		if v.Verify(h, body) == nil && v.Verify(h, append(body, 'x')) == nil {
			t.Fatal("two bodies have the same signature")
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(keyA)
	f.Add(keyPrivate)
	f.Add(keyPublic)
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := signature.ParseKey(text); err == nil && key.CanSign() {
			if sig := (signature.Keys{key}).Sign("i", time.Unix(1, 0), nil); !strings.HasPrefix(sig, "v1") {
				t.Fatalf("signature %q", sig)
			}
		}
	})
}
