package executor

// Blames is blames.
var Blames = blames
