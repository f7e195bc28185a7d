// Package frame splits byte streams of an API server into values without decoding them.
//
// It supports two wire formats. JSON is scanned without decoding but completely: input that [SkipValue] accepts is
// valid JSON, so a caller that looks for members needs no second pass for validation. Protobuf is read field by field.
//
// Every function takes the whole buffer and an index, and returns the index after the bytes that it consumed. For a
// value that is cut by the end of the buffer it returns [ErrShort]: the caller reads more bytes and calls again. The
// functions allocate only errors.
package frame
