// Package shard divides the objects of a resource into slots, of which the replicas of a program hold disjoint sets.
//
//	layout := shard.Layout{By: shard.Namespace, Slots: 64}
//	mine := layout.Set(0, 1, 2, 3)
//	mine.Has("team-a", uid) // is an object of that namespace in it?
//	mine.Selector()         // the same, for an API server that shards lists and watches itself (KEP-5866)
//
// A slot is a range of the hash (FNV-1a, 64 bits) of one field of an object, its namespace or its uid, neither of which
// ever changes: an object stays in its slot. Slot 0 begins at hash 0; all slots have the same size.
//
// Hashing the namespace keeps an object and what it owns together. Objects that have no namespace hash the empty string
// then, and are all in one slot. Hashing the uid is for them, and for namespaces that are too big for one replica.
//
// Package shard/group says which replica holds which slots.
package shard
