// Package causes tells why an operation does not move on, in the values of package why: [Of] from the object alone, and
// the other functions one cause each, for those who know more than the object tells.
//
// What the object tells holds for every replica, also for one that does not work on the operation, and for nobody at
// all: the phase, the calls with their times, the conditions that the executor writes while it waits for others. It may
// be older than what the executor knows, since not every wait is written (executor, "Order of writes").
package causes
