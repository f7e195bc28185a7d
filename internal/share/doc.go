// Package share divides bounded things fairly between groups, such as namespaces: places of concurrent work (Turnstile)
// and entries of a cache (Cache). Flights merges equal work.
package share
