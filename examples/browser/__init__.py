"""MiniLM in a page: sentences in, similarities out, with the time of a call by its length.

python -m examples.browser out/browser
python -m http.server -d out/browser
"""
