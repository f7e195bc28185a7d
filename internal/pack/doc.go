// Package pack keeps many encoded objects in little memory.
//
// Encoded objects of one kind resemble each other, and those of one workload differ in a few identifiers only. Package
// pack compresses them with dictionaries that it builds from the objects themselves. One common dictionary is a sample
// of all objects. Each group of similar objects also has its own, which is one of its objects. (s2 with such a
// dictionary compresses a pod of 4.9 KB to about 0.5 KB in 6 µs, and decompresses it in 0.5 µs.)
//
// A new [Item] keeps its bytes on the heap. When enough new bytes have accumulated, a background goroutine packs them
// into the arena, which is memory outside the Go heap. Items changed by a watch wait longer. A superseded item moves
// back to the heap, where the garbage collector frees it. The arena therefore holds current objects only and needs no
// collector: compaction empties sparse blocks.
//
// # Parts
//
// [Packer] connects the parts: it decides when a round of packing or compaction runs, and runs it.
//
//	part         state                                                              lock
//	Item         the bytes of an object on the heap, or its slot                  atomic; writers: packedItems.mu
//	queue        new items                                                        Packer.mu
//	nursery      recently changed items, their age and their limit                Packer.mu
//	rounds       background rounds that run                                       Packer.mu
//	compressor   groups of similar objects, the sample, dictionaries, encoders    Packer.work
//	packedItems  items in slots, numbers of the dictionaries that slots need      mu
//	  arena        blocks of memory, free slots                                   packedItems.mu
//
// Packer.work also serializes the rounds. Locks are taken in the order Packer.work, Packer.mu, packedItems.mu. No lock
// is held while user code runs.
package pack
