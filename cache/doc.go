// Package cache has the names that programs use of Fairlead's caches: which objects to watch, what to keep of them, and
// how to read them.
//
// A runtime, a client and observers make and share their caches without this package. A program names it to restrict
// what is watched, to add an index, or to read the objects of a kind without a copy:
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
// changing it. fairlead.WithDetectMutation finds code that does not.
//
// Everything in this package is safe for concurrent use.
package cache
