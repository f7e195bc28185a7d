// Package project writes projects of operators: what fairlead new does.
//
//	made, err := project.New(ctx, project.Options{
//		Dir: "web", Module: "example.com/web", Group: "web.example.com", Kind: "WebPage",
//	})
//
// What is written is the user's from then on, and has no copy of the library in it: it requires the library as a
// module. It is in template/, in three parts: project, which is written once, group for each group and version, and
// kind for each kind. There << and >> stand around what text/template fills in, and in names of files GROUP, VERSION
// and KIND; dot. begins the name of a hidden file. A kind that is added later goes to the lines that say
// //fairlead:new.
//
// Invariants:
//   - All of it is written or nothing: in a directory beside, which is renamed when it is complete.
//   - What is wrong with the input is found before anything is written, all of it, as errors that name it.
//   - The chart of a project is made of what kustomize builds: what is in both is one file, to which links lead.
//   - Files that are the user's are changed by NewKind at the lines //fairlead:new alone.
package project
