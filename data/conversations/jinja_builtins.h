// The names that Jinja templates can use: tests, filters, methods of texts and mappings, functions. Inside data/ only.
//
// An Error names the unknown name, or the value that does not fit.
#pragma once

#include <string>

#include "data/conversations/jinja_value.h"

namespace megalith::jinja {

// Returns the argument at a position or of a name, or `otherwise`.
Value argument(const Arguments& a, size_t place, const char* name, const Value& otherwise);

bool test(const std::string& name, const Value& v, const Arguments& a);     // v is name(a)
Value filter(const std::string& name, const Value& v, const Arguments& a);  // v|name(a)

Value member_of(const Value& object, const std::string& name);  // object.name, methods included
Value item_of(const Value& object, const Value& key);           // object[key]
Value slice_of(const Value& object, const Value& from, const Value& to, const Value& by);

// Returns the functions that a template can call.
Members globals();

}  // namespace megalith::jinja
