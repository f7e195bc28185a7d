package controllerruntime

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/store"
)

// InUse returns how many stores the running informers of a cache read. A manager opens most informers when it starts,
// so call it after WaitForCacheSync. The error says why an informer does not read a store, or why there is no store at
// all. It is nil only if every informer of the cache reads a store.
//
//	stores, err := controllerruntime.InUse(mgr.GetCache())
func InUse(c any) (stores int, err error) {
	ours, ok := c.(*caching)
	if !ok {
		return 0, fmt.Errorf("cache %T was not made by NewCache of this package; if it wraps one that was, pass that one", c)
	}
	return ours.informers.inUse()
}

// newInformerFunc is the type of cache.Options.NewInformer.
type newInformerFunc func(
	toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers,
) toolscache.SharedIndexInformer

// informers are the informers of one cache. It is safe for concurrent use.
type informers struct {
	given newInformerFunc // cache.Options.NewInformer of the user; nil: none

	mu     sync.Mutex
	ours   []*informer // those that have not stopped, and perhaps others
	others []error     // why an informer reads no store
}

// add records an informer over a store.
func (s *informers) add(in *informer) *informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ours = append(slices.DeleteFunc(s.ours, (*informer).IsStopped), in)
	return in
}

// addOther records an informer that reads no store.
func (s *informers) addOther(
	in toolscache.SharedIndexInformer, obj runtime.Object, why error,
) toolscache.SharedIndexInformer {
	klog.Background().Error(why, "an informer is not over a store, and does not see own writes at once",
		"type", fmt.Sprintf("%T", obj))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = append(s.others, fmt.Errorf("the informer of %T reads no store: %w", obj, why))
	return in
}

func (s *informers) inUse() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stores := map[*store.Store]bool{}
	for _, in := range s.ours {
		if from := in.from.Load(); from != nil && from.last == nil {
			stores[from.store] = true
		}
	}
	if len(stores) == 0 && len(s.others) == 0 {
		return 0, errors.New("no informer of the cache is running")
	}
	return len(stores), errors.Join(s.others...)
}

// probe checks which informers the given function returns. The function is also called for each informer, and its
// result is not used if it is one of client-go.
func (s *informers) probe() (err error) {
	defer func() {
		if recover() != nil { // it needs a real kind; what it returns is checked again for each kind
			err = nil
		}
	}()
	nothing := &toolscache.ListWatch{}
	in := s.given(nothing, &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
	if _, ok := settingsOf(in); !ok {
		return fmt.Errorf("cache.Options.NewInformer returns a %T, which cannot read a store; "+
			"remove NewInformer, or return an informer of client-go without a watch error handler", in)
	}
	return nil
}

// settings are what a function for informers may change of its arguments.
type settings struct {
	resync   time.Duration
	indexers toolscache.Indexers
}

// settingsOf returns the settings of an informer of client-go. ok is false for another informer, which may do anything,
// and for one whose errors are handled. A transform need not be considered: controller-runtime sets its own. client-go
// has no method for the resync period, so settingsOf reads the fields of its type.
func settingsOf(in toolscache.SharedIndexInformer) (s settings, ok bool) {
	if in == nil {
		return settings{}, false
	}
	stock := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, nil, 0, nil)
	v := reflect.ValueOf(in)
	if v.Type() != reflect.TypeOf(stock) || v.IsNil() {
		return settings{}, false
	}
	resync, handler := v.Elem().FieldByName("defaultEventHandlerResyncPeriod"), v.Elem().FieldByName("watchErrorHandler")
	if handler.Kind() == reflect.Func && !handler.IsNil() {
		return settings{}, false
	}
	s.indexers = in.GetIndexer().GetIndexers()
	if resync.Kind() == reflect.Int64 {
		s.resync = time.Duration(resync.Int())
	}
	return s, true
}
