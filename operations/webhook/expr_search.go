package webhook

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// searches implements indexOf and lastIndexOf in linear time. Those of CEL compare the whole wanted text at every
// position, without a check for cancellation: half a megabyte of each takes a minute.
var searches = map[string]functions.FunctionOp{
	"indexOf": func(args ...ref.Val) ref.Val {
		return search(args, 0, func(text, wanted string, from int) int {
			at := strings.Index(text[from:], wanted)
			if at >= 0 {
				at += from
			}
			return at
		})
	},
	"lastIndexOf": func(args ...ref.Val) ref.Val {
		return search(args, -1, func(text, wanted string, from int) int {
			return strings.LastIndex(text[:min(len(text), from+len(wanted))], wanted)
		})
	},
}

// search implements the common part. find works with bytes, expressions with characters. The optional third argument is
// the start position, from where lastIndexOf searches backwards. Its default is otherwise; a negative value counts from
// the end.
func search(args []ref.Val, otherwise int, find func(text, wanted string, from int) int) ref.Val {
	if len(args) < 2 {
		return types.NewErr("no such overload")
	}
	t, isText := args[0].(types.String)
	w, isWanted := args[1].(types.String)
	from, isGiven := types.Int(otherwise), len(args) > 2
	if isGiven {
		isText = isText && args[2].Type() == types.IntType
		from, _ = args[2].(types.Int)
	}
	text, wanted := string(t), string(w)
	length := types.Int(utf8.RuneCountInString(text))
	if !isGiven && from < 0 && (wanted == "" || length == 0) {
		from = length
	} else if !isGiven && from < 0 {
		from = length - 1
	}
	switch {
	case !isText || !isWanted:
		return types.MaybeNoSuchOverloadErr(args[0])
	case from < 0:
		return types.NewErr("index out of range: %d", from)
	case wanted == "":
		return min(from, length)
	case from >= length:
		return types.Int(-1)
	}
	at := find(text, wanted, byteOf(text, int(from)))
	if at < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(text[:at]))
}

// byteOf returns the byte offset of a character, or the length of the text.
func byteOf(text string, character int) int {
	for at := range text {
		if character == 0 {
			return at
		}
		character--
	}
	return len(text)
}
