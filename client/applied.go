package client

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// applied remembers the applies made, so that one equal to the last one need not be sent while the cache shows its
// effect. Which fields an owner holds is written in managedFields, which the cache does not keep; that an equal apply
// was answered by this very incarnation says as much.
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

// memo encodes an apply and says what to remember of it.
func (w *writing) memo(want map[string]any) (applyMemo, []byte, error) {
	data, err := json.Marshal(want)
	return applyMemo{at: applyKey{w.k, w.key, w.sub, w.o.owner}, sum: sha256.Sum256(data)}, data, err
}

// holds says whether an apply was made before and the object still has all of it.
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
	have, err := contentOf(raw)
	if err != nil {
		return false
	}
	// List items of built-in kinds do not say their kind.
	have["kind"], have["apiVersion"] = want["kind"], want["apiVersion"]
	return tree.Contains(have, want)
}

// note remembers an apply that succeeded.
func (a *applied) note(m applyMemo, answer *call.Answer) {
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
	for k := range a.memo { // any one makes room: what is forgotten is sent once more
		if len(a.memo) < a.max {
			break
		}
		delete(a.memo, k)
	}
	a.memo[m.at] = m
}
