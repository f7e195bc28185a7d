// Package causes explains why an operation makes no progress, in the values of package why. [Of] reads only the object.
// The other functions each return one cause, for callers that know more than the object contains.
//
// The object contains the phase, the calls with their times, and the conditions that the executor writes while it
// waits. Every client and every replica can read it, even a replica that does not run the operation. The object may be
// older than the executor's own state, because not every wait is written (executor, "Order of writes").
package causes
