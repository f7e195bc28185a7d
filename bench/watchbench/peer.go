package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

// event is what a peer tells about one change that its handler was given.
type event struct {
	version string
	initial bool
}

// target is what a peer watches.
type target struct {
	cfg    *rest.Config
	corpus string // pods, widgets
	list   bool   // LIST instead of WatchList
}

// peer is a cache under measurement. The handler of every peer reads the whole object, unless it is told to look at the header only.
type peer interface {
	// start begins to list and watch, and returns when all is in the cache.
	start(ctx context.Context, t target, handler func(event)) error
	// whole says whether the handler reads the whole object. A peer that always decodes ignores it.
	whole(bool)
	// readAll reads every object as a whole.
	readAll() (n int)
	// keys returns some keys of the cache.
	keys(n int) []key
	// get reads one object, and byIndex those with a value of the index "bucket".
	get(k key) error
	byIndex(value string) (n int)
	stop()
}

type key struct{ namespace, name string }

// buckets is the number of values of the index: 1,000 objects of 100,000 have one.
const buckets = 100

func bucketOf(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprint(h.Sum32() % buckets)
}

// specs are the peers by name, in the order of the tables.
var specs = []struct {
	name, corpus string
	wire         string
	make         func() peer
}{
	{"fairlead, protobuf", "pods", "protobuf", func() peer { return newFairlead(true) }},
	{"client-go typed", "pods", "protobuf", func() peer { return &clientGo{mode: typed} }},
	{"controller-runtime typed", "pods", "protobuf", func() peer { return &controllerRuntime{} }},
	{"client-go metadata", "pods", "protobuf", func() peer { return &clientGo{mode: metadataOnly} }},
	{"fairlead, JSON", "pods", "JSON", func() peer { return newFairlead(false) }},
	{"client-go dynamic", "pods", "JSON", func() peer { return &clientGo{mode: dynamicMode} }},
	{"controller-runtime unstructured", "pods", "JSON", func() peer { return &controllerRuntime{unstructured: true} }},
	{"bound: keep the bytes", "pods", "JSON", func() peer { return &bound{} }},
	{"fairlead, JSON, widgets", "widgets", "JSON", func() peer { return newFairlead(false) }},
	{"client-go dynamic, widgets", "widgets", "JSON", func() peer { return &clientGo{mode: dynamicMode} }},
	{"bound: keep the bytes, widgets", "widgets", "JSON", func() peer { return &bound{} }},
}

func specByName(name string) int {
	for i, s := range specs {
		if s.name == name {
			return i
		}
	}
	return -1
}

// reads is the result of the reading rows.
type reads struct {
	Get     time.Duration `json:"get"`     // of objects that were read a moment ago
	GetCold time.Duration `json:"getCold"` // of objects that were not
	List    time.Duration `json:"list"`    // of one value of the index, read before
	Listed  int           `json:"listed"`
	GetHeap float64       `json:"getHeap"` // allocations of one hot Get
}

func measureReads(p peer) (reads, error) {
	keys := p.keys(2000)
	if len(keys) == 0 {
		return reads{}, nil
	}
	var r reads
	slices.Reverse(keys)
	begin := time.Now()
	for _, k := range keys[:len(keys)/2] {
		if err := p.get(k); err != nil {
			return r, err
		}
	}
	r.GetCold = time.Since(begin) / time.Duration(max(1, len(keys)/2))
	hot := keys[:min(100, len(keys))]
	once := func() {
		for _, k := range hot {
			_ = p.get(k)
		}
	}
	for range 50 {
		once()
	}
	const rounds = 2000
	before := mallocs()
	begin = time.Now()
	for range rounds {
		once()
	}
	r.Get = time.Since(begin) / time.Duration(rounds*len(hot))
	r.GetHeap = float64(mallocs()-before) / float64(rounds*len(hot))
	for range 3 {
		r.Listed = p.byIndex("7")
	}
	const lists = 30
	begin = time.Now()
	for range lists {
		p.byIndex("7")
	}
	r.List = time.Since(begin) / lists
	return r, nil
}
