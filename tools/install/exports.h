// SPDX-License-Identifier: Apache-2.0
// Which symbols of the engine are the public API's: what libmillrace.so exports.
//
// Public and internal names share the namespace millrace, so a symbol is judged by the public
// headers: every class around it is defined there, it is named there itself, and its signature has
// no type that they do not mention. What only the engine knows stays inside.
#ifndef TOOLS_INSTALL_EXPORTS_H_
#define TOOLS_INSTALL_EXPORTS_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::exports {

using Names = std::set<std::string, std::less<>>;

// What the public headers say, by name.
struct PublicNames {
  Names scopes;    // classes and enums with a body, namespaces
  Names declared;  // classes that are only named: types of parameters, not owners of symbols
  Names called;    // followed by a parenthesis: functions
  Names words;     // every identifier
};

// Adds what one header has. Comments and literals count for nothing.
void ReadHeader(std::string_view text, PublicNames& names);

// Whether the symbol, demangled ("vtable for millrace::Layer"), belongs to the API.
bool IsPublic(std::string_view demangled, const PublicNames& names);

// A linker version script with one version node: these symbols, and no others.
std::string VersionScript(std::string_view node, const std::vector<std::string>& mangled);
// Flags, one a line, by which a program is linked with these symbols and exports them.
std::string LinkFlags(const std::vector<std::string>& mangled);

}  // namespace millrace::exports

#endif  // TOOLS_INSTALL_EXPORTS_H_
