package source

// discreetDecoder removes excerpts and raw bytes from the errors of another decoder. They may contain parts of an
// object that the sink must not keep.
type discreetDecoder struct{ decoder }

func (d discreetDecoder) next(b []byte, eof bool, e *event) (n int, got bool, err error) {
	n, got, err = d.decoder.next(b, eof, e)
	withoutExcerpt(err)
	if got {
		withoutExcerpt(e.err)
		if e.kind == evGarbage {
			e.obj.Raw = nil
		}
	}
	return n, got, err
}
