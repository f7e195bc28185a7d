package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/why"
)

// sourceRow is one scope of a source.
type sourceRow struct {
	ID, Name, Cluster, Type, At string
	Namespace                   string
	Objects                     int
	Status                      *inspect.Scope // nil: it is not running
	Error                       string
	Observers                   []inspect.Observer
	PerSecond                   string
	Memory                      store.MemoryStats
	Quarantined                 []quarantinedRow
	Hidden                      bool // there are further unreadable objects, hidden from the reader
	Bad, Running                bool
	broken                      bool // it has other problems than unreadable objects
	Age                         time.Duration
}

// quarantinedRow is an object that cannot be decoded.
type quarantinedRow struct {
	inspect.Quarantined
	Of why.Object
}

// Incomplete reports whether unreadable objects are the only problem.
func (r *sourceRow) Incomplete() bool { return (len(r.Quarantined) > 0 || r.Hidden) && !r.broken }

// Message returns the message of the source. While the source is healthy, its status message is about unreadable
// objects, which only readers with the right may see, so it is omitted.
func (r *sourceRow) Message() string {
	if r.Status == nil || r.Status.Phase == string(source.Watching) {
		return r.Error
	}
	return strings.TrimSpace(r.Status.Message + " " + r.Error)
}

// behindAfter is the delay of an observer from which the page shows it, as why does.
const behindAfter = 5 * time.Second

// healthy contains the phases of a healthy source.
var healthy = map[string]bool{string(source.Watching): true, string(source.Stopped): true}

// sources is the page of the watched resources.
type sources struct {
	status   func() inspect.Runtime
	resource pages.ResourceOf
}

func (p *sources) page() pages.Page {
	return pages.Page{
		Name: "sources", Title: "Sources", Menu: true, Data: p.data, Shows: func(schema.GroupKind) bool { return true },
	}
}

func (p *sources) data(ctx context.Context, rd *pages.Reader, _ *http.Request) (any, error) {
	var rows []sourceRow
	visible := pages.NewVisibility(rd, p.resource)
	for i, s := range p.status().Sources {
		row := sourceRow{
			ID: "source-" + strconv.Itoa(i), Name: strings.Join(s.Selector, " "), Cluster: s.Cluster, Type: s.Type, At: s.At,
			Objects: s.Objects, Error: s.Error, Observers: s.Observers, Bad: s.Error != "",
			Memory: s.Memory, Running: s.Running,
		}
		var quarantined []quarantinedRow
		hidden := map[string]bool{} // by namespace
		for _, q := range s.Quarantined {
			one := quarantinedRow{q, why.Object{Group: s.Kind.Group, Kind: s.Kind.Kind, Namespace: q.Namespace, Name: q.Name}}
			may, err := visible.MayGet(ctx, one.Of)
			switch {
			case err != nil:
				return nil, err
			case may:
				quarantined = append(quarantined, one)
			default:
				hidden[q.Namespace] = true
			}
		}
		if len(s.Status) == 0 {
			row.Quarantined, row.Hidden = quarantined, len(hidden) > 0
			row.Bad = row.Bad || len(s.Quarantined) > 0
			rows = append(rows, row)
		}
		for j := range s.Status {
			one := row
			one.ID += "-" + strconv.Itoa(j)
			one.Status, one.Namespace = &s.Status[j], s.Status[j].Namespace
			one.Age = one.Status.Staleness
			if all := one.Namespace == ""; all {
				one.Quarantined, one.Hidden = quarantined, len(hidden) > 0
			} else {
				one.Quarantined = slices.DeleteFunc(slices.Clone(quarantined), func(q quarantinedRow) bool {
					return q.Namespace != one.Namespace
				})
				one.Hidden = hidden[one.Namespace]
			}
			one.broken = one.Bad || !healthy[one.Status.Phase] || one.Age > staleAfter || !one.Status.Synced
			one.Bad = one.broken || len(one.Quarantined) > 0 || one.Hidden
			if lived := time.Since(one.Status.Since); lived > 0 && one.Status.Counters.Events > 0 {
				one.PerSecond = number(float64(one.Status.Counters.Events) / lived.Seconds())
			}
			rows = append(rows, one)
		}
	}
	slices.SortStableFunc(rows, func(a, b sourceRow) int {
		if a.Bad != b.Bad {
			if a.Bad {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Age, a.Age)
	})
	return rows, nil
}
