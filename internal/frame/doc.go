// Package frame splits byte streams of an API server into values without decoding them.
//
// It knows two wire forms. JSON is skipped lexically but completely: whatever [SkipValue] accepts is valid JSON, so a
// caller that finds its members on the way needs no second pass for validation. Protobuf is walked field by field.
//
// Every function takes the whole buffer and an index, and answers with the index behind what it consumed. A value that
// the end of the buffer cuts is reported as [ErrShort]: read more and ask again. Nothing here allocates, except errors.
package frame
