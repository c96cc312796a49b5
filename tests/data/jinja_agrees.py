"""Renders each line of standard input, {"template", "variables"}, as `transformers` does, and prints its text or null.

With transformers' own environment where it can be imported, else with Jinja in the same settings.
"""

import json
import sys


def environment():
    try:
        from transformers.utils.chat_template_utils import _compile_jinja_template

        return _compile_jinja_template
    except ImportError:
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message):
            raise ValueError(message)

        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
        env.globals["raise_exception"] = refuse
        return env.from_string


compile_template = environment()
for line in sys.stdin:
    case = json.loads(line)
    try:
        print(json.dumps(compile_template(case["template"]).render(**case["variables"])))
    except Exception as error:
        print("null", repr(error)[:300], file=sys.stderr)
        print("null")
