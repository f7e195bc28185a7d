package flow

import "slices"

// DeepCopyInto copies the position, as generated code of API types expects it.
func (p *Position) DeepCopyInto(out *Position) {
	*out = *p
	out.Checkpoint = slices.Clone(p.Checkpoint)
	out.Back = slices.Clone(p.Back)
	if p.Left != nil {
		left := *p.Left
		out.Left = &left
	}
}

// DeepCopy returns a copy.
func (p *Position) DeepCopy() *Position {
	if p == nil {
		return nil
	}
	out := new(Position)
	p.DeepCopyInto(out)
	return out
}
