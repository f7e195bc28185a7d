// Package course decides the course of an operation: its next step (Plan), the status change of each step (Change), and
// the order among operations that exclude each other (Place). The results depend only on the arguments. The executor
// carries out the decisions.
package course
