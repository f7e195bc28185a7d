// Package cache chooses which objects Fairlead watches and what it keeps of them, and reads them without a copy.
//
// Runtimes, clients and observers make and share their caches without this package. A program uses it to restrict a
// watch, to index one store, or to read the objects of a kind directly. fairlead.IndexField indexes all stores of a
// kind.
//
//	rt := fairlead.New(config, fairlead.WithSource(cache.Namespaces("team-a"), cache.Labels("app=web")))
//
//	handle, err := cache.AcquireFor[corev1.Pod](rt.Cache())
//	if err != nil { … }
//	defer handle.Release()
//	pods := cache.Of[corev1.Pod](handle.Store)
//	err = cache.IndexBy(pods, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
//	for key, pod := range pods.Index("node", "n1") { … } // READ-ONLY
//
// All readers of one version of an object get the same pointer. It is read-only: copy the object with DeepCopy before
// changing it. fairlead.WithDetectMutation finds code that changes a shared object.
//
// All functions and types of this package are safe for concurrent use.
package cache
