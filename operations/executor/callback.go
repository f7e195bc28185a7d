package executor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Callbacks makes and reads the tokens of callback URLs. A token names an operation and a webhook, and is signed with
// the key, so it cannot be forged. It is the same for every try of a call, so a callback to any try counts. Every
// replica with the same key accepts it. Callbacks is safe for concurrent use.
type Callbacks struct {
	base string
	key  []byte
}

// Callback is the content of a token.
type Callback struct {
	Namespace   string `json:"n"`
	Name        string `json:"o"` // of the Operation object
	OperationID string `json:"i"`
	WebhookID   string `json:"w"`
	// Purpose is the purpose of the call.
	Purpose webhook.Purpose `json:"p,omitempty"`
}

// NewCallbacks returns the Callbacks for a key. base is the start of the URLs; if it is empty, URL returns none.
func NewCallbacks(base string, key []byte) *Callbacks {
	return &Callbacks{base: strings.TrimRight(base, "/"), key: key}
}

// Enabled reports whether this process has a base URL and a key for callbacks.
func (c *Callbacks) Enabled() bool { return c.base != "" && len(c.key) > 0 }

// URL returns the URL at which the receiver of a call reports its outcome. It returns "" if callbacks are not
// enabled.
func (c *Callbacks) URL(op *v1alpha1.Operation, webhookID string, purpose webhook.Purpose) string {
	if !c.Enabled() {
		return ""
	}
	return c.base + "/callbacks/" + c.Token(Callback{
		Namespace: op.Namespace, Name: op.Name, OperationID: op.EffectiveID(), WebhookID: webhookID, Purpose: purpose,
	})
}

// Token returns the token of a callback.
func (c *Callbacks) Token(cb Callback) string {
	payload, err := json.Marshal(cb)
	if err != nil {
		panic(err) // strings always encode
	}
	return encoding.EncodeToString(payload) + "." + encoding.EncodeToString(sign(c.key, payload))
}

// Parse returns the content of a token, or [operations.ErrUnknownCallback].
func (c *Callbacks) Parse(token string) (Callback, error) {
	var cb Callback
	head, tail, _ := strings.Cut(token, ".")
	payload, err := encoding.DecodeString(head)
	if err != nil || len(c.key) == 0 {
		return cb, operations.ErrUnknownCallback
	}
	signature, err := encoding.DecodeString(tail)
	if err != nil || !hmac.Equal(signature, sign(c.key, payload)) {
		return cb, operations.ErrUnknownCallback
	}
	if err := json.Unmarshal(payload, &cb); err != nil {
		return cb, operations.ErrUnknownCallback
	}
	return cb, nil
}

var encoding = base64.RawURLEncoding

func sign(key, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("fairlead callback v1\x00"))
	mac.Write(payload)
	return mac.Sum(nil)
}
