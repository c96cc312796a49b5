// Writes the page of `megalith report`: one HTML file that needs no other file and no network. The build embeds its
// parts: page.html, page.css and the scripts, which draw the whole page from one JSON.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

extern const char* const page_html;
extern const char* const page_css;
extern const char* const page_js;

// Returns the page of one run, or of several, the best first.
std::string report_page(std::vector<History> runs);

}  // namespace megalith
