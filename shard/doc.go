// Package shard divides the objects of a resource into slots. The replicas of a program hold disjoint sets of slots.
//
//	layout := shard.Layout{By: shard.Namespace, Slots: 64}
//	mine := layout.Set(0, 1, 2, 3)
//	mine.Has("team-a", uid) // is an object of that namespace in it?
//	mine.Selector()         // the same, for an API server that shards lists and watches itself (KEP-5866)
//
// A slot is a range of the hash (FNV-1a, 64 bits) of one field of an object, its namespace or its uid. These fields
// never change. The ranges have the same size, or the boundaries of [Layout.WithStarts]. An object stays in its slot
// while a replica holds the slot, since the boundaries of a held slot do not change.
//
// Hashing the namespace keeps an object and the objects that it owns in one slot. Cluster-scoped objects then hash the
// empty string, and all are in one slot. Hash the uid for them, and for namespaces that are too big for one replica.
//
// Package shard/group assigns the slots to the replicas.
package shard
