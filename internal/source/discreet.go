package source

// discreetDecoder shows nothing of what another decoder cannot read: that may be of an object of which not everything
// is to be kept.
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

// excerpt is the beginning of what came, if it may be shown.
func (s *scope) excerpt(b []byte) string {
	if s.src.cfg.NoExcerpts {
		return ""
	}
	return excerpt(b)
}
