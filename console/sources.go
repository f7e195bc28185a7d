package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/source"
)

// sourceRow is one scope of a source.
type sourceRow struct {
	ID, Name, Cluster, Type, At string
	Namespace                   string
	Objects                     int
	Status                      *observe.StatusDescription // nil: it is not running
	Error                       string
	Observers                   []observe.ObserverDescription
	PerSecond                   string
	Bad                         bool
	Age                         time.Duration
}

// fine are the phases of a source that need no look.
var fine = map[source.Phase]bool{source.Watching: true, source.Stopped: true}

func (c *console) sources(context.Context, *reader, *http.Request) (any, error) {
	var rows []sourceRow
	for i, s := range c.status().Sources {
		row := sourceRow{
			ID: "source-" + count(i), Name: strings.Join(s.Selector, " "), Cluster: s.Cluster, Type: s.Type, At: s.At,
			Objects: s.Objects, Error: s.Error, Observers: s.Observers, Bad: s.Error != "",
		}
		if len(s.Status) == 0 {
			rows = append(rows, row)
		}
		for j := range s.Status {
			one := row
			one.ID += "-" + count(j)
			one.Status, one.Namespace = &s.Status[j], s.Status[j].Namespace
			one.Age = one.Status.Staleness
			one.Bad = one.Bad || !fine[one.Status.Phase] || one.Age > staleAfter || !one.Status.Synced
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
