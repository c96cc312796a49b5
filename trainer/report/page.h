// `megalith report` writes runs as one HTML page that needs no other file and no network. The build embeds its
// template, page.html with page.css, curves.js, stacked.js and page.js.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

extern const char* const page_html;
extern const char* const page_css;
extern const char* const page_js;
extern const char* const curves_js;
extern const char* const stacked_js;

// Returns the page of one run, or of several, the best first.
std::string report_page(std::vector<History> runs);

}  // namespace megalith
