// Package bench measures Fairlead side by side with its peers. It is a module of its own, so that users of the
// library do not depend on the peers.
package bench
