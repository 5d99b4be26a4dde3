SELECT empty_call();
SELECT empty_call();
SELECT empty_call();
SELECT empty_call();
