// Package course decides what becomes of an operation: what is due for it now (Plan), what each step changes in its
// status (Change), and where it stands among those that exclude it (Place). All of it depends on its arguments only;
// the executor does what is decided here.
package course
