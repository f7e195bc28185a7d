package console

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/why"
)

func noneStuck() map[cache.Key]why.Type { return nil }

// indexOf returns an index of a store.
func indexOf(all *cache.Store) *index {
	open := func(context.Context) (*cache.Store, func(), error) { return all, func() {}, nil }
	return newIndex(open, noneStuck, slog.New(slog.DiscardHandler))
}

// TestIndexModel: after any events, before and after the store is synced, the index has each row once, oldest first.
// Its pages match a filter over all rows.
func TestIndexModel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		none := store.New(store.Options{})
		x := indexOf(none)
		model := map[cache.Key]*row{}
		began := time.Now()
		syncedAt := rnd.IntN(60)
		for step := range 120 {
			if step == syncedAt {
				x.apply(none, []store.Event{{Type: store.Synced}})
			}
			k := cache.Key{Namespace: fmt.Sprint("ns-", rnd.IntN(3)), Name: fmt.Sprint("op-", rnd.IntN(12))}
			if rnd.IntN(4) == 0 {
				x.apply(none, []store.Event{{Type: store.Deleted, Key: k}})
				delete(model, k)
				continue
			}
			r := &row{
				key: k, id: fmt.Sprint("id-", step), created: began.Add(time.Duration(rnd.IntN(5)) * time.Second),
				status: []operations.Status{operations.InProgress, operations.Failed, operations.Succeeded}[rnd.IntN(3)],
			}
			if before := model[k]; before != nil && rnd.IntN(2) == 0 {
				r.created = before.created
			}
			r.words = words(r)
			if x.rows == nil {
				x.rows = map[cache.Key]*row{}
			}
			x.put(r)
			model[k] = r
		}
		var want []*row
		for _, r := range model {
			want = append(want, r)
		}
		slices.SortFunc(want, older)
		if !slices.Equal(want, x.sorted) || len(x.rows) != len(model) {
			t.Fatalf("seed %d: the index has %d rows, of %d in order, want %d", seed, len(x.rows), len(x.sorted), len(want))
		}
		f := filter{
			namespace: fmt.Sprint("ns-", rnd.IntN(3)), status: string(operations.Failed),
			text: fmt.Sprint("d-", rnd.IntN(10)),
		}
		slices.Reverse(want)
		var found []*row
		for _, r := range want {
			if f.selects(r, "") {
				found = append(found, r)
			}
		}
		from := rnd.IntN(3)
		p := x.page(f, from, 2)
		if p.total != len(found) || !slices.Equal(p.rows, found[min(from, len(found)):min(from+2, len(found))]) {
			t.Fatalf("seed %d: a page from %d has %d of %d, want %d", seed, from, len(p.rows), p.total, len(found))
		}
	}
}

// TestIndexDrops: an unused index is dropped, and the next use waits for a new one.
func TestIndexDrops(t *testing.T) {
	none := store.New(store.Options{})
	x := indexOf(none)
	x.apply(none, []store.Event{{Type: store.Synced}})
	ready, before := x.touch(), x.changes()
	x.drop()
	select {
	case <-ready:
	default:
		t.Error("a caller that waits for the index is not woken")
	}
	if x.touch() == ready || x.synced || x.rows != nil || x.changes() == before {
		t.Error("it was not dropped, or open pages do not notice")
	}
}
