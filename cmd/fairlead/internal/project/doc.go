// Package project writes operator projects for fairlead new.
//
//	made, err := project.New(ctx, project.Options{
//		Dir: "web", Module: "example.com/web", Group: "web.example.com", Kind: "WebPage",
//	})
//
// The user owns the written files. They contain no copy of the library, which is required as a module. NewKind,
// NewWebhook and NewVersion extend a project.
//
// The templates are in template/, by part:
//
//   - project: written once. group: for each group and version.
//   - example: the kind of a new project. kind: a kind with an empty reconciler.
//   - webhooks: the server of webhooks, written with the first webhook or version. webhook: for each kind with
//     webhooks.
//   - versions: the function that conversions share. version: for each version added to a kind.
//
// The delimiters of text/template are << and >>. In file names, GROUP, VERSION and KIND are replaced, and the prefix
// dot. makes a hidden file.
//
// Invariants:
//   - A project is written completely or not at all: in a temporary directory, which is renamed at the end.
//   - A command changes all files of a project or none. Invalid input is detected before any file is written.
//   - Existing files of the user change only at the lines //fairlead:new, and NewVersion marks the stored type.
//     Generated files become what make manifests would write.
//   - The chart of a project has no copy of the manifests: it links to them.
package project
