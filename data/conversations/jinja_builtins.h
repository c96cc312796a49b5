// What Jinja templates find in the language: tests, filters, methods of texts and mappings, functions. Inside data/
// only.
//
// An Error names the one that is not known, or the value that it does not take.
#pragma once

#include <string>

#include "data/conversations/jinja_value.h"

namespace megalith::jinja {

// Returns the argument at a place or of a name, or `otherwise`.
Value argument(const Arguments& a, size_t place, const char* name, const Value& otherwise);

bool test(const std::string& name, const Value& v, const Arguments& a);     // v is name(a)
Value filter(const std::string& name, const Value& v, const Arguments& a);  // v|name(a)

Value member_of(const Value& object, const std::string& name);  // object.name, a method among them
Value item_of(const Value& object, const Value& key);           // object[key]
Value slice_of(const Value& object, const Value& from, const Value& to, const Value& by);

// Returns the functions that a template can call.
Members globals();

}  // namespace megalith::jinja
