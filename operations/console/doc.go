// Package console adds the pages of operations to a console of the library:
//
//	console.New(console.Options{Runtime: rt, Sections: []console.Section{operationsconsole.Section{…}}})
//
// The pages are the list of operations, one operation with its timeline, bulk changes, the list of Webhooks and one
// Webhook. Operations require list on operations.fairlead.io in the namespace, and changes require update. The right to
// list all served operations also permits reading of the pages about the whole program.
//
// The lists use an index that follows all operations, also those of other replicas, while lists are open. It is dropped
// ten minutes after the last use.
//
// To understand the code, read section.go and index.go. Each page has its own file.
package console
