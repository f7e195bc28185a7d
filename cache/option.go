package cache

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
)

// Option restricts or tunes the watch of a kind: [Namespaces], [Labels], [Fields], [EverySlot], [SilenceBudget] and
// [BulkDeleteGuard] make one.
type Option = source.Option

// Namespaces restricts a watch to these namespaces. Without any, all namespaces are watched. A watch of cluster-scoped
// objects must not be restricted.
func Namespaces(namespaces ...string) Option { return source.Namespaces(namespaces...) }

// Labels restricts a watch to objects whose labels match the selector, such as "app=web,tier!=test".
func Labels(selector string) Option { return source.Labels(selector) }

// Fields restricts a watch to objects whose fields match the selector, such as "spec.nodeName=n1".
func Fields(selector string) Option { return source.Fields(selector) }

// EverySlot watches the objects of all slots, even if replicas divide the kind among them. Use it for objects that
// every replica needs, such as configuration.
func EverySlot() Option { return source.EverySlot() }

// SilenceBudget sets how long a watch may be silent before the server is asked whether the watch has missed a change.
// The default is 90 seconds.
func SilenceBudget(d time.Duration) Option { return source.SilenceBudget(d) }

// BulkDeleteGuard sets how many objects a list may omit before a second list has to confirm their deletion. The default
// is 100; a negative number disables the confirmation.
func BulkDeleteGuard(n int) Option { return source.BulkDeleteGuard(n) }
