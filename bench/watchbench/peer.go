package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/controllerruntime"
)

// event is a change that the handler of a peer has received.
type event struct {
	version string
	initial bool
}

// target says which objects a peer watches, and how.
type target struct {
	cfg    *rest.Config
	corpus string // pods or widgets
	list   bool   // LIST instead of WatchList
	paged  bool   // LIST in pages of 500
}

// peer is a cache under measurement. The handler of every peer reads the whole object, unless whole says otherwise.
type peer interface {
	// start starts to list and watch, and returns when all objects are in the cache.
	start(ctx context.Context, t target, handler func(event)) error
	// whole sets whether the handler reads the whole object or only the header. A peer that always decodes ignores
	// it.
	whole(bool)
	// readAll reads every object completely.
	readAll() (n int)
	// keys returns some keys of the cache.
	keys(n int) []key
	// get reads one object. byIndex reads the objects with a value of the index "bucket".
	get(k key) error
	byIndex(value string) (n int)
	stop()
}

type key struct{ namespace, name string }

// bucketsEnv is the number of values of the index in a child. The default is 100, which gives 1,000 of 100,000
// objects per value.
const bucketsEnv = "BENCH_BUCKETS"

var buckets = uint32(number(bucketsEnv, 100))

func bucketOf(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprint(h.Sum32() % buckets)
}

// writer is a peer that measures the time its writer takes for a change.
type writer interface {
	watchApply()              // starts the measurement
	applied() []time.Duration // time of each change since watchApply
}

// many is a peer that can add more idle handlers.
type many interface {
	// handlers adds n handlers and returns when they have received the content of the cache. remove removes them.
	handlers(n int) (remove func(), err error)
}

// Rows of the kinds of peers. S3header needs a cache whose handler decides whether to decode. PAGED needs an option
// for pages.
const (
	ourRows     = "S1 S6 S3 S4 S3header S8 S7 S5 LIST PAGED"
	rowsOfAll   = "S1 S6 S3 S4 S8 S7 S5 LIST PAGED"
	withoutPage = "S1 S6 S3 S4 S8 S7 S5 LIST"
	withoutList = "S1 S6 S3 S4 S8 S7 S5"
	listOnly    = "S1 LIST" // the other rows are those of client-go dynamic
	boundRows   = "S1 S3 S4"
	doorRows    = "S1 S3 S4 S3header S5" // the other rows are those of the store beneath it

	collectorRows = "S1 S3 S4 S8"

	adapterRows = "S1 S6 HANDLERS S3 S4 S8 S5"
	sharedRows  = "S1 S6"
)

// Sets of peers.
const (
	mainSet    = "main"
	adapterSet = "adapter"
)

// specs are the peers in the order of the tables. Slow ones take minutes with 100,000 objects, so they get fewer
// events and relist in the first round only.
var specs = []struct {
	name, corpus string
	slow         bool
	rows         string
	make         func() peer
	env          []string // added to the environment of the process
}{
	{"fairlead, protobuf", "pods", false, ourRows, func() peer { return newFairlead(true) }, nil},
	{"front door, protobuf", "pods", false, doorRows, func() peer { return newDoor(true) }, nil},
	{"client-go typed", "pods", false, rowsOfAll, func() peer { return &clientGo{mode: typed} }, nil},
	{"controller-runtime typed", "pods", false, withoutPage, func() peer { return &controllerRuntime{} }, nil},
	{"client-go metadata", "pods", false, withoutList, func() peer { return &clientGo{mode: metadataOnly} }, nil},
	{"fairlead, metadata", "pods", false, ourRows, func() peer { return newFairleadMetadata() }, nil},
	{"fairlead, JSON", "pods", false, ourRows, func() peer { return newFairlead(false) }, nil},
	{"front door, JSON", "pods", false, doorRows, func() peer { return newDoor(false) }, nil},
	{"client-go dynamic", "pods", true, rowsOfAll, func() peer { return &clientGo{mode: dynamicMode} }, nil},
	{"controller-runtime unstructured", "pods", true, listOnly, func() peer {
		return &controllerRuntime{unstructured: true}
	}, nil},
	{"bound: keep the bytes", "pods", false, boundRows, func() peer { return &bound{} }, nil},
	{"fairlead, JSON, widgets", "widgets", false, ourRows, func() peer { return newFairlead(false) }, nil},
	{"controller-runtime typed, widgets", "widgets", false, withoutPage, func() peer { return &controllerRuntime{} }, nil},
	{"client-go dynamic, widgets", "widgets", true, rowsOfAll, func() peer { return &clientGo{mode: dynamicMode} }, nil},
	{"bound: keep the bytes, widgets", "widgets", false, boundRows, func() peer { return &bound{} }, nil},
	// The cost of a small heap: a collection runs each time it has doubled.
	{
		"fairlead, protobuf, GOGC=400", "pods", false, collectorRows, func() peer { return newFairlead(true) },
		[]string{"GOGC=400"},
	},
	{
		"fairlead, protobuf, GOMEMLIMIT", "pods", false, collectorRows, func() peer { return newFairlead(true) },
		[]string{"GOGC=off", "GOMEMLIMIT=512MiB"},
	},
	{
		"fairlead, JSON, GOGC=400", "pods", false, collectorRows, func() peer { return newFairlead(false) },
		[]string{"GOGC=400"},
	},
	{
		"fairlead, JSON, widgets, GOGC=400", "widgets", false, collectorRows, func() peer { return newFairlead(false) },
		[]string{"GOGC=400"},
	},
	// The set adapter: the cache of controller-runtime, stock and on our stores, both with defaults.
	{"stock typed", "pods", false, adapterRows, manager(controllerRuntime{}), nil},
	{"adapter typed", "pods", false, adapterRows, manager(controllerRuntime{new: controllerruntime.NewCache}), nil},
	{"stock unstructured", "pods", true, adapterRows, manager(controllerRuntime{unstructured: true}), nil},
	{
		"adapter unstructured", "pods", true, adapterRows,
		manager(controllerRuntime{unstructured: true, new: controllerruntime.NewCache}), nil,
	},
	{"stock typed, no copies", "pods", false, sharedRows, manager(controllerRuntime{shared: true}), nil},
	{
		"adapter typed, no copies", "pods", false, sharedRows,
		manager(controllerRuntime{shared: true, new: controllerruntime.NewCache}), nil,
	},
	{
		"adapter typed, no managedFields", "pods", false, sharedRows,
		manager(controllerRuntime{new: controllerruntime.Options{DropManagedFields: []schema.GroupKind{{}}}.NewCache}), nil,
	},
}

// setOf returns the set of a peer.
func setOf(name string) string {
	if strings.HasPrefix(name, "stock ") || strings.HasPrefix(name, "adapter ") {
		return adapterSet
	}
	return mainSet
}

func specByName(name string) int {
	for i, s := range specs {
		if s.name == name {
			return i
		}
	}
	return -1
}

// reads is the result of the read measurements.
type reads struct {
	Get     time.Duration `json:"get"`     // of recently read objects
	GetCold time.Duration `json:"getCold"` // of other objects
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
	before := heapUsed().allocations
	rounds, took := repeat(2000, once)
	r.Get = took / time.Duration(rounds*len(hot))
	r.GetHeap = float64(heapUsed().allocations-before) / float64(rounds*len(hot))
	for range 3 {
		r.Listed = p.byIndex("7")
	}
	lists, took := repeat(30, func() { p.byIndex("7") })
	r.List = took / time.Duration(lists)
	return r, nil
}

// repeat calls f up to most times, but starts no call after one second. It returns the number of calls and their
// time.
func repeat(most int, f func()) (n int, took time.Duration) {
	begin := time.Now()
	for n < most && (n == 0 || took < time.Second) {
		f()
		n++
		took = time.Since(begin)
	}
	return n, took
}
