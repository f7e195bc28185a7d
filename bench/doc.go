// Package bench measures Fairlead side by side with its peers, in a module of its own so that users of the library
// depend on none of them.
package bench
