package client

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// applied remembers successful applies. An apply equal to the last one need not be sent while the cache shows its
// result. The cache lacks managedFields and so does not show which fields an owner has. An equal, answered apply of the
// same incarnation proves that the owner has them.
type applied struct {
	mu   sync.Mutex
	max  int
	memo map[applyKey]applyMemo
}

type applyKey struct {
	kind  *kind
	key   Key
	sub   string
	owner string
}

type applyMemo struct {
	at  applyKey
	sum [sha256.Size]byte
	uid types.UID
}

func (a *applied) init(bound int) {
	a.max = bound
	a.memo = map[applyKey]applyMemo{}
}

// memo encodes an apply and returns the record of it, without the uid.
func memo(at applyKey, want map[string]any) (applyMemo, []byte, error) {
	data, err := json.Marshal(want)
	return applyMemo{at: at, sum: sha256.Sum256(data)}, data, err
}

// holds reports whether an equal apply was made and the object still has all of its fields.
func (a *applied) holds(m applyMemo, r *cache.Record, want map[string]any) bool {
	a.mu.Lock()
	last, ok := a.memo[m.at]
	a.mu.Unlock()
	if !ok || last.sum != m.sum || last.uid != r.UID() {
		return false
	}
	raw, err := r.AppendJSON(nil)
	if err != nil {
		return false
	}
	have, err := content.Decode(raw)
	if err != nil {
		return false
	}
	// List items of built-in kinds lack kind and apiVersion.
	have["kind"], have["apiVersion"] = want["kind"], want["apiVersion"]
	return tree.Contains(have, want)
}

// add remembers a successful apply.
func (a *applied) add(m applyMemo, answer *call.Answer) {
	if a.max < 0 {
		return
	}
	var head struct{ Metadata struct{ UID types.UID } }
	if json.Unmarshal(answer.Raw, &head) != nil || head.Metadata.UID == "" {
		return
	}
	m.uid = head.Metadata.UID
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.memo { // evict any entry: a forgotten apply is only sent again
		if len(a.memo) < a.max {
			break
		}
		delete(a.memo, k)
	}
	a.memo[m.at] = m
}
