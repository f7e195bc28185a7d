package store

import (
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/internal/source"
)

// Store is the last known state of one resource. It is safe for concurrent use. Reads take no lock.
//
// A Store only connects its parts. It embeds those whose exported methods are its own.
type Store struct {
	opt       Options
	scope     atomic.Pointer[string] // Options.Scope, once it has changed
	codec     codec                  // of its records, with its logger
	publisher                        // the published state, with the writer lock
	reader                           // reads
	indexer
	currentSelector
	intake        // from sources
	ownWrites     // of this program
	waits         // for versions and slots
	subscriptions // cursors and drainers
}

// New returns an empty store. Close it after use.
func New(opt Options) *Store {
	s := &Store{opt: opt}
	s.codec.init(&s.opt, s.bodies)
	s.connect()
	s.SetSelectors(source.Selectors{Label: opt.LabelSelector, Field: opt.FieldSelector})
	return s
}

// connect gives each part the other parts that it uses.
func (s *Store) connect() {
	pub, own := &s.publisher, &s.ownWrites
	scopes, order := coverages{}, &order{}
	pub.init()
	pub.follower = &s.subscriptions
	own.overlay.init(s.opt.OverlayBound, s.codec.intern, order, scopes)
	own.ledger.init()
	own.pub, own.codec, own.selector, own.coverages = pub, &s.codec, &s.currentSelector, scopes
	own.server, own.readers, own.opt = &s.waits, &s.subscriptions, &s.opt
	s.currentSelector.codec, s.currentSelector.opt = &s.codec, &s.opt
	s.indexer = indexer{pub: pub, overlay: &own.overlay, seed: s.codec.intern.seed, opt: &s.opt}
	s.reader = reader{pub: pub, intern: s.codec.intern, indexer: &s.indexer}
	s.waits = waits{
		pub: pub, overlay: &own.overlay, coverages: scopes, intern: s.codec.intern, logger: s.codec.logger, opt: &s.opt,
		hasSource: func() bool { return s.intake.live.Load() != nil }, surveys: map[string]*surveys{},
	}
	in := &s.intake
	in.opt, in.pub, in.codec, in.order, in.coverages = &s.opt, pub, &s.codec, order, scopes
	in.overlay, in.ledger, in.waits, in.sinks = &own.overlay, &own.ledger, &s.waits, map[string]*scope{}
	s.subscriptions.init(pub, &own.ledger, scopes, s.codec.logger)
}

// Options returns the options that the store was made with.
func (s *Store) Options() Options { return s.opt }

// Complete reports whether the store was made without selectors and without Shard, so that it holds all objects of its
// scopes.
func (s *Store) Complete() bool {
	return s.opt.LabelSelector == "" && s.opt.FieldSelector == "" && s.opt.Shard == ""
}

// Close ends the subscriptions and pending waits, and waits for the store's background work. Reads still work after it.
func (s *Store) Close() {
	s.publisher.lock()
	if !s.publisher.close() {
		s.publisher.unlock()
		return
	}
	s.waits.close()
	end := s.subscriptions.close()
	s.intake.board.close()
	s.publisher.unlock()
	end()
	s.waits.running.Wait()
	s.codec.pack.Close()
}

// Flush packs all objects now. Otherwise that happens in the background, in rounds.
func (s *Store) Flush() { s.codec.pack.Flush() }

// bodies yields the encoded objects that are current.
func (s *Store) bodies(yield func(*pack.Item) bool) {
	for r := range s.publisher.current().base.all() {
		if !yield(&r.body) {
			return
		}
	}
}
