// Package project writes operator projects for fairlead new.
//
//	made, err := project.New(ctx, project.Options{
//		Dir: "web", Module: "example.com/web", Group: "web.example.com", Kind: "WebPage",
//	})
//
// The user owns the written files. They contain no copy of the library, which is required as a module. The templates
// are in template/, in three parts: project, which is written once, group for each group and version, and kind for each
// kind. The delimiters of text/template are << and >>. In file names, GROUP, VERSION and KIND are replaced, and the
// prefix dot. makes a hidden file. NewKind inserts a later kind at the lines //fairlead:new.
//
// Invariants:
//   - A project is written completely or not at all: in a temporary directory, which is renamed at the end.
//   - Invalid input is detected before any file is written. All problems are returned as errors that name it.
//   - The chart of a project shares files with kustomize: a common file exists once, and the chart links to it.
//   - NewKind changes existing files of the user only at the lines //fairlead:new.
package project
