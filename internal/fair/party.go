package fair

// Party identifies a member of a group, for example a tenant of a namespace.
type Party struct{ Group, Member string }

// Usage is the number of waiters, of their groups, and of all waits so far.
type Usage struct{ Waiting, Groups, Waits int }

// request is a caller that waits for a share, or has not fetched a granted one yet.
type request struct {
	key     any // chosen by the caller
	wake    func()
	cost    Price
	urgent  bool
	granted bool
}
